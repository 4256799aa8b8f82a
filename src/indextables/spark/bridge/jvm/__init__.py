"""Objects of this process that the JVM calls, and objects of the JVM that this process calls."""
