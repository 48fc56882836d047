"""The composition root (design section 4): `app` alone imports every layer and wires them together."""
