"""The documentation as a site: `make docs` stages pages, the reference and the gallery, and lets MkDocs build them."""
