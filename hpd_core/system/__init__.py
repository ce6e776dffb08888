"""Machine around the engine: files at any URI, the user's cache, threads, the device."""
