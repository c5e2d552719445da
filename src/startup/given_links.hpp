// The links that a job begins with: rank 0 reads them from a file (PITH_LINKS), and all ranks hear
// of them with the last exchange of the start-up.
#pragma once

#include <map>
#include <string>

#include "model/link_table.hpp"
#include "settings/settings.hpp"

namespace pith {

class GivenLinks {
 public:
  // Nothing is given.
  GivenLinks() = default;
  // By rank 0 of the job, before the others wait for it. Nothing is given with PITH_DETERMINISTIC,
  // and where the file is not there yet that this run is to write.
  static Expected<GivenLinks> read(const Settings& settings);

  // What a rank tells the others: how it is called where it runs, and what rank 0 was given.
  std::string pack(const Settings& settings) const;
  // By rank what each has told. Nothing counts that is of other ranks or hosts: rank 0 logs that.
  void hear(const std::map<int, std::string>& told);

  // With PITH_DETERMINISTIC calls do not tell what is learnt elsewhere.
  bool is_pinned() const { return is_pinned_; }
  const KnownLinks& known() const { return known_; }
  // What was given, as far as it counts, for this job.
  const LinkTable& table() const { return table_; }

 private:
  void put_aside(const JobPlaces& theirs, const JobPlaces& ours);

  bool is_pinned_ = false;
  std::string path_;  // empty: none was read here
  LinkTable table_;
  KnownLinks known_;
};

}  // namespace pith
