// Holds the precompiled headers of the library.
