"""Quality plans of studies, one YAML file each: `specmeter quality --plan NAME`."""
