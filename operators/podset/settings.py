"""Settings of the podset operator, in addition to the settings that every operator has."""

from pydantic import Field

from libs.common.settings import CommonSettings, operator_settings
from operators.podset.resources import DEFAULT_IMAGE


class Settings(CommonSettings):
    """Settings of the podset operator."""

    model_config = operator_settings("podset")

    default_image: str = Field(default=DEFAULT_IMAGE, min_length=1, max_length=1024)
    """default_image is the image of the pods of a PodSet without a template; it needs a `sleep`
    and must be allowed to run as any user."""
