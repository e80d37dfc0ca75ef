"""An operator that copies Secrets into namespaces, ported from kopf."""
