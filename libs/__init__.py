"""Code that operators share: the library (`common`) and views of kinds (`contracts`)."""
