#include <fmt/format.h>

#include "model/link_table.hpp"
#include "question.hpp"

namespace pith_explain {

using namespace pith;

namespace {

Error lacks(const std::string& name, std::string_view what) {
  return {Code::invalid_argument, fmt::format("--links is {}, which has no {}", name, what)};
}

}  // namespace

Expected<Link> saved_link(const std::string& text, const std::string& name, int hosts,
                          bool devices) {
  LinkTable table(LinkTable::most_paths);
  if (Error error = table.restore(text)) {
    return Error(error.code(), fmt::format("--links is {}: {}", name, error.message()));
  }
  const KnownLinks known = table.known();
  Link link;
  link.shared_memory = hosts == 1 && known.views.known();
  const KnownLink& one = link.shared_memory ? known.views : known.between(hosts > 1);
  const bool knows_one =
      known.views.known() || known.messages.known() || known.calls.known() || known.path.known();
  if (!knows_one) return lacks(name, "link yet; expected that of a longer job, or of more sizes");
  if (hosts > 1 && !known.calls.known() && !known.path.known()) {
    return lacks(name, "path between hosts; expected --hosts 1");
  }
  if (hosts == 1 && !known.views.known() && !known.calls.known() && !known.messages.known()) {
    return lacks(name, "link inside a host; expected --hosts of at least 2");
  }
  const MemoryKind memory = devices ? MemoryKind::cuda : MemoryKind::host;
  link.cost = {one.alpha, one.beta, table.work(WorkKind::reduce, memory).beta().value};
  return link;
}

}  // namespace pith_explain
