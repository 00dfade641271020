"""Messages for clients whose site died: other nodes keep them, and the client's new node redelivers them
once.
"""
