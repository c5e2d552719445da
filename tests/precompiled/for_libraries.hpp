// What most sources of the library include.
#pragma once

#include <fmt/format.h>

#include "tests/precompiled/standard.hpp"
