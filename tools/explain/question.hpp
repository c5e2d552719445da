// What is asked: a call, who makes it, and over which link.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/algorithm.hpp"
#include "compress/spec.hpp"
#include "core/error.hpp"

namespace pith_explain {

struct Link {
  pith::LinkCost cost;
  bool shared_memory = false;
};

// `shm`, `10g`, `1g` or `100m`; a delay may follow, as in `1g,+5ms`. `flag` is named in errors.
pith::Expected<Link> parse_link(std::string_view flag, const std::string& text);

// What `pith-info --links --save` or a job (PITH_SAVE_LINKS) has measured: views inside a host,
// else the link that whole calls had, else the slowest path between hosts or messages inside one.
// `text`: the file's, `name`: its, for messages.
pith::Expected<Link> saved_link(const std::string& text, const std::string& name, int hosts,
                                bool devices);

// `64`, `64K`, `4M`, `4MiB`: powers of 1024.
pith::Expected<std::size_t> parse_size(std::string_view flag, const std::string& text);

struct Sizes {
  std::size_t low = 0;
  std::size_t high = 0;
};
// `LO:HI`.
pith::Expected<Sizes> parse_sizes(std::string_view flag, const std::string& text);

// From low on, each twice the last.
std::vector<std::size_t> doubled(const Sizes& sizes);

pith::Expected<pith::Collective> parse_collective(std::string_view flag, const std::string& text);

struct Question {
  pith::Collective collective = pith::Collective::allreduce;
  std::size_t bytes = 0;  // of the vector, or of one rank's block
  int ranks = 2;
  int hosts = 1;
  int ranks_a_host = 0;  // at most; 0: ranks are spread evenly
  pith::LinkCost link;
  bool views = false;
  bool oversubscribed = false;
  bool devices = false;
  std::optional<pith::Spec> compress;
};

}  // namespace pith_explain
