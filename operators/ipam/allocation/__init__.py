"""IPAllocation: releases an address once its claim is gone."""
