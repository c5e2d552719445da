// Where the demo's data set is.
#pragma once

#include <string>

namespace pith::demo {

// The digits that are installed with this program, found from where the program lies, because an
// installed tree may be moved; else those of the source tree it was built in.
std::string data_file();

}  // namespace pith::demo
