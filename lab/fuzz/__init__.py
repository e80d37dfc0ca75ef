"""Generated operations: what users may write, made from the schemas of the CRDs."""
