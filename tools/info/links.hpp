// pith-info --links: starts ranks or joins those of a launcher, measures, prints and saves.
#pragma once

#include <string>

namespace pith_info {

struct LinkOptions {
  int ranks = 0;  // processes to start on this host; 0: a launcher has started them
  std::string save;
};

// The process's exit status.
int show_links(const LinkOptions& options);

}  // namespace pith_info
