#include <fmt/format.h>

#include <algorithm>

#include "model/link_table.hpp"
#include "question.hpp"

namespace pith_explain {

using namespace pith;

namespace {

constexpr std::size_t most_paths = 4096;  // a file may have those of 91 hosts

Error lacks(const std::string& name, std::string_view what) {
  return {Code::invalid_argument, fmt::format("--links is {}, which has no {}", name, what)};
}

// The slowest path, as calls among all hosts wait for it.
std::optional<LinkCost> slowest_path(LinkTable& table) {
  std::optional<LinkCost> slowest;
  for (std::size_t i = 0; i < table.paths(); ++i) {
    if (!table.path(i).learnt()) continue;
    const LinkCost one = table.cost(table.path(i), MemoryKind::host);
    if (!slowest) slowest = one;
    slowest->alpha = std::max(slowest->alpha, one.alpha);
    slowest->beta = std::max(slowest->beta, one.beta);
  }
  return slowest;
}

}  // namespace

Expected<Link> saved_link(const std::string& text, const std::string& name, int hosts,
                          bool devices) {
  LinkTable table(most_paths);
  if (Error error = table.restore(text)) {
    return Error(error.code(), fmt::format("--links is {}: {}", name, error.message()));
  }
  Link link;
  if (hosts > 1) {
    const std::optional<LinkCost> path = slowest_path(table);
    if (!path) return lacks(name, "path between hosts; expected --hosts 1");
    link.cost = *path;
  } else {
    const LinkEstimate& views = table.host(HostLink::views);
    const LinkEstimate& messages = table.host(HostLink::messages);
    link.shared_memory = views.learnt();
    if (!views.learnt() && !messages.learnt()) {
      return lacks(name, "link inside a host; expected --hosts of at least 2");
    }
    link.cost = table.cost(views.learnt() ? views : messages, MemoryKind::host);
  }
  const MemoryKind memory = devices ? MemoryKind::cuda : MemoryKind::host;
  link.cost.gamma = table.work(WorkKind::reduce, memory).beta().value;
  return link;
}

}  // namespace pith_explain
