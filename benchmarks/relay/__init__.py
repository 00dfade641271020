"""What a node or a gateway costs between clients and their broker, beside HAProxy and beside no relay."""
