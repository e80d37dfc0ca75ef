"""IPAddressClaims of Cluster API whose `spec.poolRef` names an IPPool."""
