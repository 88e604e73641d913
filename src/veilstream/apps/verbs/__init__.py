"""What Python and the command line both call on a policy: audit, report, release; and advice on a model."""
