"""Virtual time: the pure layers unchanged, with model brokers, clients, networks and disks around them."""
