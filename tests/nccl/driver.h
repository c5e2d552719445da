/* The stub driver, whose path is a client's argument: its functions by name. */
#pragma once

#include <dlfcn.h>

#include "client.h"

static const char* driver_path;

static inline void* driver_symbol(struct client* me, const char* name) {
  void* const library = dlopen(driver_path, RTLD_NOW | RTLD_GLOBAL);
  CHECK(library != NULL);
  void* const found = dlsym(library, name);
  CHECK(found != NULL);
  return found;
}
