"""IPAllocation: releases an address after its claim was deleted."""
