"""Admission webhooks: every replica serves them, with a certificate that it renews.

The chart creates the Service, an empty Secret and the webhook configuration. An operator passes its
reviewers:

```python
def build_webhooks(manager: Manager) -> Coroutine[Any, Any, None] | None:
    return serve_webhooks(manager, {"/pods": review})

OPERATOR = Operator("greeter", (build_controller,), settings=Settings, runnables=(build_webhooks,))
```
"""

from libs.common.webhooks.declaration import Webhook
from libs.common.webhooks.review import Review, Reviewer, ReviewResponse
from libs.common.webhooks.serve import serve_webhooks
from libs.common.webhooks.settings import WebhookSettings

__all__ = ["Review", "ReviewResponse", "Reviewer", "Webhook", "WebhookSettings", "serve_webhooks"]
