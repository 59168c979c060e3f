// What a shell may complete on the command line of `shoal`.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace shoal::tool {

/// The words that may stand at the cursor, all of them: the shell drops those that do not begin as the user has begun.
struct Candidates {
  enum class Files { kNone, kAll, kDirectories };
  struct Word {
    std::string text, about;
  };
  std::vector<Word> words;
  Files files = Files::kNone;  ///< names of files may stand there, too
};

/// What is looked up only where it fits.
struct LookUp {
  std::function<std::vector<std::string>()> models;                          ///< their names
  std::function<std::vector<std::string>(const std::string& model)> inputs;  ///< of a model, which may be a path
};

/// Knows commands, options and their values from `application` alone: its names of values (type_name() of options, names of
/// positionals) say what they are. NAME: a model of the daemon; PATH, FILE, IMAGE, URL: files; DIR: directories; MODEL: a name or
/// files; INPUT: an input of the model that the first positional names; {a,b}: one of these. A value that is written KEY=VALUE is
/// completed behind the last '=', without what stands before it.
///   words  those after the program's name, up to the one at the cursor, which may be empty
Candidates complete(const CLI::App& application, std::span<const std::string> words, const LookUp& look_up);

/// Whether the daemon serves the model now.
///   stats  what the daemon answers; no error if that has another form
bool is_served(const std::string& stats, const std::string& model);

/// `shoal completion words WORD...`, which the scripts call: "none", "files" or "directories" on the first line, then a line for
/// each word: the word, a tab, what it is about.
int print_candidates(const CLI::App& application, std::span<const std::string> words);

/// `shoal completion daemon-words WORD...`: the same for shoald.
int print_daemon_candidates(std::span<const std::string> words);

}  // namespace shoal::tool
