// What rank 0 of a communicator chooses, and why, as a file: by it pith-explain shows a job that
// runs or has ended. The file is replaced as a whole, so a reader never finds a part of it.
//
// Used by the control thread, which waits for the disk, and at the communicator's end.
#pragma once

#include <cstdint>
#include <string>

#include "model/model.hpp"
#include "model/tuner.hpp"

namespace pith {

class ChoiceLog {
 public:
  // `hosts`: how many run ranks.
  ChoiceLog(std::string path, const Model& model, int hosts);

  // Writes the file if there is news and a second has passed since the last time. `tuner` may be
  // null: no call has been timed yet. Logs a warning, once, if the file cannot be written.
  void look(const Tuner* tuner, std::uint64_t now_ns);
  void end(const Tuner* tuner);

 private:
  std::string text(const Tuner* tuner, bool ended) const;
  void write(const std::string& text);

  const std::string path_;
  const Model& model_;
  const int hosts_;
  std::uint64_t looked_ns_ = 0;  // when it was asked last whether there is news
  std::uint64_t calls_ = 0;      // that had been timed then
  bool failed_ = false;
};

}  // namespace pith
