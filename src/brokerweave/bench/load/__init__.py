"""The load tool: clients in processes of their own, which publish on schedule and log all they send and
receive."""
