"""The operators, one file per family; every file here is imported when the first net is made."""
