"""What a node costs between clients and their broker, beside HAProxy and beside no relay at all."""
