"""The views of the project."""

from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_POST

from shop.models import User
from shop.queue import docket
from shop.tasks import send_welcome


@csrf_exempt
@require_POST
@transaction.atomic
def sign_up(request: HttpRequest, email: str) -> JsonResponse:
    user = User.objects.create(email=email)
    key = f"welcome-{user.pk}"
    # After the commit: a worker that is quicker would not find the user.
    transaction.on_commit(lambda: docket.add(send_welcome, key=key)(user.pk))
    return JsonResponse({"key": key}, status=202)


@require_GET
def task_state(request: HttpRequest, key: str) -> JsonResponse:
    execution = docket.get_execution(key)
    return JsonResponse({"state": execution.state if execution else "unknown"})
