"""The command line: thin verbs over the files of MOUNT and HOME. It knows nothing that `cat` could not find out."""
