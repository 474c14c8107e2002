"""Parts that commands share: options, output, logs, and the processes of a worker."""
