"""The addresses of the project."""

from django.urls import path

from shop import views

urlpatterns = [
    path("users/<str:email>", views.sign_up),
    path("tasks/<str:key>", views.task_state),
]
