"""The same fleet as kind clusters, for people with a container engine.

Not verified: this project was made on machines without a container engine. What is tested is `render.py`, that is the
files and the command lines; the commands themselves have never been run.
"""
