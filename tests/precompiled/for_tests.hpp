// What most tests include.
#pragma once

#include <fstream>
#include <random>
#include <sstream>

#include "tests/catch.hpp"
#include "tests/precompiled/standard.hpp"
