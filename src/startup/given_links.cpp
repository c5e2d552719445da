#include "startup/given_links.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <fstream>
#include <sstream>
#include <vector>

#include "core/log.hpp"
#include "core/packing.hpp"

namespace pith {

namespace {

Error cannot_read(const std::string& path, int errno_value) {
  return system_error(fmt::format("PITH_LINKS is {}, expected a file that PITH_SAVE_LINKS or "
                                  "pith-info --links --save has written",
                                  path),
                      errno_value);
}

}  // namespace

Expected<GivenLinks> GivenLinks::read(const Settings& settings) {
  GivenLinks given;
  const std::string& path = settings.links.given;
  given.is_pinned_ = settings.deterministic;
  if (path.empty() || given.is_pinned_) return given;
  errno = 0;
  std::ifstream file(path);
  std::stringstream text;
  if (file) text << file.rdbuf();
  if (!file || (!text && errno != 0)) {
    const bool comes_later = errno == ENOENT && settings.links.kept == path;
    return comes_later ? Expected(given) : cannot_read(path, errno);
  }
  given.path_ = path;
  given.table_ = LinkTable(LinkTable::most_paths);
  if (Error error = given.table_.restore(text.str())) {
    return Error(error.code(), fmt::format("PITH_LINKS is {}: {}", path, error.message()));
  }
  return given;
}

std::string GivenLinks::pack(const Settings& settings) const {
  Packer packer;
  packer.value(host_name_hash(settings.host_id));
  if (!path_.empty()) packer.value(table_.places()).text(table_.known().pack());
  return packer.take();
}

void GivenLinks::hear(const std::map<int, std::string>& told) {
  std::vector<std::uint64_t> names;
  JobPlaces theirs;
  for (const auto& [rank, blob] : told) {
    Unpacker unpacker(blob);
    names.push_back(unpacker.value<std::uint64_t>());
    if (unpacker.empty()) continue;
    theirs = unpacker.value<JobPlaces>();
    known_ = KnownLinks::unpack(unpacker.text());
  }
  const JobPlaces ours = places_of(std::move(names));
  if (theirs != ours) put_aside(theirs, ours);
  table_.set_places(ours);
}

void GivenLinks::put_aside(const JobPlaces& theirs, const JobPlaces& ours) {
  known_ = {};
  if (path_.empty()) return;
  table_ = LinkTable();
  const bool as_many = theirs.ranks == ours.ranks && theirs.hosts == ours.hosts;
  log(LogLevel::warn,
      fmt::format("PITH_LINKS: {} is not used: it is of {}, and this job has {}{}", path_,
                  theirs.text(), ours.text(), as_many ? " of other names" : ""));
}

}  // namespace pith
