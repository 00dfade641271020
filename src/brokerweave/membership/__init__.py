"""Who is in the cluster and who is not: SWIM with Lifeguard, pure."""
