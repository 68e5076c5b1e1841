// toml++, compiled into the wheel's daemon: Debian has it as a shared library and as headers.
#define TOML_IMPLEMENTATION
#include <toml++/toml.h>
