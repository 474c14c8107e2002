"""The same calls on `pydocket` 0.27 and on docket, each
in an environment of its own: where do they differ?"""
