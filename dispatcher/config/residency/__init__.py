"""The files of `residency/`, read strictly and put together to the bundle of the law (docs/residency.md)."""
