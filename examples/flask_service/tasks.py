"""The tasks of the service: `docket worker --docket shop --tasks tasks:tasks`."""


def send_welcome(email: str) -> str:
    return f"welcome, {email}"


tasks = [send_welcome]
