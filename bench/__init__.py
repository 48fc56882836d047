"""What Entrepot costs and what it is worth, measured beside its peers. `make bench`; see README.md."""
