"""Static manifests for those who do not use Helm."""
