"""The supervisor: owns agent processes, their session ids and journals. It never touches the mount."""
