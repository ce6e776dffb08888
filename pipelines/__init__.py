"""Jobs around the engine: everything that needs Ray, files or a command line. `hpd_core` never imports it."""
