"""A new operator that works, from the files of the tutorial: `./dev new`."""
