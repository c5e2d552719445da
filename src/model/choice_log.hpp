// What rank 0 of a communicator chooses, and why, as a file: by it pith-explain shows a job that
// runs or has ended.
//
// Used by the control thread, which waits for the disk, and at the communicator's end.
#pragma once

#include <cstdint>
#include <string>

#include "model/model.hpp"
#include "model/tuner.hpp"

namespace pith {

// JSON, as the file has it. `tuner` may be null: no call has been timed yet. `hosts`: how many run
// ranks; `ended`: no call follows.
std::string choices_text(const Model& model, int hosts, const Tuner* tuner, bool ended);

class ChoiceLog {
 public:
  ChoiceLog(std::string path, const Model& model, int hosts);

  // Writes the file if there is news and a second has passed since the last time. `tuner` may be
  // null: no call has been timed yet. Logs a warning, once, if the file cannot be written.
  void look(const Tuner* tuner, std::uint64_t now_ns);
  void end(const Tuner* tuner);

 private:
  void write(const std::string& text);

  const std::string path_;
  const Model& model_;
  const int hosts_;
  std::uint64_t looked_ns_ = 0;  // when it was asked last whether there is news
  std::uint64_t calls_ = 0;      // that had been timed then
  bool failed_ = false;
};

}  // namespace pith
