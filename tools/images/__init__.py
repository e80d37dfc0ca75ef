"""Images of operators: a base from Debian packages, the packages of the lockfile, the code."""

from tools.images.build import build as build
from tools.images.build import build_together as build_together
from tools.images.build import check_needs as check_needs
from tools.images.build import list_all_images as list_all_images
from tools.images.build import list_images as list_images
from tools.images.build import push as push
