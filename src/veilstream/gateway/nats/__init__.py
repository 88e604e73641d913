"""The gateway on NATS JetStream: any number of workers, memory by compare-and-set."""
