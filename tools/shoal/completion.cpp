// shoal completion: what bash and zsh ask when somebody presses Tab, for shoal and shoald.
#include "tools/shoal/completion.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "shm/base/errors.hpp"
#include "shm/model/model_config.hpp"
#include "shoal/pool.hpp"
#include "supervisor/command_line.hpp"
#include "tools/shoal/commands.hpp"
#include "tools/shoal/in_process.hpp"

namespace shoal::tool {
namespace {

constexpr const char* kCompletionAbout =
    "Prints what lets a shell complete commands, options, models, their inputs, presets and files, for shoal and shoald.";
constexpr const char* kCompletionMore = R"text(The packages install it. Elsewhere:

  eval "$(shoal completion bash)"             in ~/.bashrc
  source <(shoal completion zsh)              in ~/.zshrc, after compinit

The script asks `shoal` itself at each Tab, so it never becomes old. The names of models, and of their inputs, are those of the
running daemon. For a PATH the inputs are those that its model.toml names.)text";

// Bash gives the words apart at '=' and ':' too, and wants the last part only. shoal puts them together again.
constexpr const char* kBash = R"text(# bash completion of shoal and shoald; printed by `shoal completion bash`
_shoal() {
  local current=${COMP_WORDS[COMP_CWORD]} prefix='' kind word shoal=$1 words=words
  [[ $shoal == *shoald ]] && shoal=${shoal%d} words=daemon-words
  [[ $current == '=' ]] && current=''
  [[ $current == *=* ]] && prefix=${current%=*}= current=${current##*=}
  COMPREPLY=()
  {
    read -r kind
    while IFS=$'\t' read -r word _; do
      [[ $word == "$current"* ]] && COMPREPLY+=("$prefix$word")
    done
  } < <("$shoal" completion "$words" "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
  case $kind in
    files | directories)
      compopt -o filenames 2>/dev/null
      local option=-f
      [[ $kind == directories ]] && option=-d
      while IFS= read -r word; do COMPREPLY+=("$prefix$word"); done < <(compgen "$option" -- "$current")
      ;;
  esac
  [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace 2>/dev/null
  return 0
}
complete -F _shoal shoal shoald
)text";

constexpr const char* kZsh = R"text(#compdef shoal shoald
# zsh completion of shoal and shoald; printed by `shoal completion zsh`
_shoal() {
  local -a lines described begun
  local line word kind shoal=${words[1]} asked=words
  [[ $shoal == *shoald ]] && shoal=${shoal%d} asked=daemon-words
  lines=("${(@f)$("$shoal" completion $asked "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  kind=${lines[1]}
  for line in "${(@)lines[2,-1]}"; do
    word=${line%%$'\t'*}
    line="${word//:/\\:}:${line#*$'\t'}"
    if [[ $word == *= ]]; then begun+=("$line"); else described+=("$line"); fi
  done
  compset -P '*='
  (( ${#described} )) && _describe -V shoal described
  (( ${#begun} )) && _describe -V shoal begun -S ''
  case $kind in
    files) _files ;;
    directories) _files -/ ;;
  esac
}
if [[ ${funcstack[1]} == _shoal ]]; then
  _shoal "$@"
else
  compdef _shoal shoal shoald
fi
)text";

using nlohmann::json;

/// The command of that name, or none.
const CLI::App* find_command(const CLI::App& application, const std::string& name) {
  const auto found = application.get_subcommands([&](const CLI::App* command) { return command->check_name(name); });
  return found.empty() ? nullptr : found.front();
}

std::vector<const CLI::Option*> positionals_of(const CLI::App& app) {
  return app.get_options([](const CLI::Option* option) { return option->get_positional(); });
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

/// Bash has "--input", "=", "data", "=", "x.n" for --input=data=x.n; this puts them together.
std::vector<std::string> put_together(std::span<const std::string> words) {
  std::vector<std::string> whole;
  bool goes_on = false;
  for (const std::string& word : words) {
    const bool is_joint = word == "=" || word == ":";
    if ((is_joint || goes_on) && !whole.empty()) {
      whole.back() += word;
    } else {
      whole.push_back(word);
    }
    goes_on = is_joint;
  }
  return whole;
}

/// What may stand for the value `kind`, of which `begun` is already there, in a command about `model`.
Candidates values(const std::string& kind, const std::string& begun, const std::string& model, const LookUp& look_up) {
  Candidates candidates;
  const auto set = kind.find('{'), set_end = kind.rfind('}');
  if (set != std::string::npos && set_end != std::string::npos) {
    std::string word;
    for (const char c : kind.substr(set + 1, set_end - set)) {
      if (c == ',' || c == '}') {
        candidates.words.push_back({word, ""});
        word.clear();
      } else {
        word += c;
      }
    }
    return candidates;
  }
  const auto equals = kind.find('=');
  const bool is_behind = begun.find('=') != std::string::npos;
  const std::string what = is_behind ? (equals == std::string::npos ? "PATH" : kind.substr(equals + 1)) : kind.substr(0, equals);
  if ((what == "NAME" && (is_behind || equals == std::string::npos)) || what == "MODEL") {
    for (std::string& name : look_up.models()) candidates.words.push_back({std::move(name), "a model of the running daemon"});
  }
  if (what == "INPUT" && !model.empty()) {
    for (const std::string& name : look_up.inputs(model)) candidates.words.push_back({name + "=", "an input of " + model});
  }
  if (what == "DIR") candidates.files = Candidates::Files::kDirectories;
  for (const char* const file : {"PATH", "FILE", "IMAGE", "MODEL", "URL"}) {
    if (what == file) candidates.files = Candidates::Files::kAll;
  }
  return candidates;
}

Candidates options_of(const CLI::App& app) {
  Candidates candidates;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames())
      candidates.words.push_back({"--" + name, first_line(option->get_description())});
  }
  return candidates;
}

/// The place of the cursor: the command, the option that waits for its value, or the number of the positional.
struct Cursor {
  const CLI::App* app = nullptr;
  const CLI::Option* option = nullptr;
  std::string first;  ///< positional
  std::size_t positional = 0;
  bool is_after_dashes = false;
};

Cursor cursor_behind(const CLI::App& application, std::span<const std::string> words) {
  Cursor cursor{.app = &application};
  for (const std::string& word : words) {
    if (cursor.option) {
      cursor.option = nullptr;
    } else if (word == "--") {
      cursor.is_after_dashes = true;
    } else if (!cursor.is_after_dashes && word.size() > 1 && word[0] == '-') {
      const CLI::Option* option = cursor.app->get_option_no_throw(word.substr(0, word.find('=')));
      const bool has_value = option && option->get_items_expected_min() > 0 && word.find('=') == std::string::npos;
      cursor.option = has_value ? option : nullptr;
    } else if (cursor.app == &application) {
      cursor.app = find_command(application, word);
      if (!cursor.app) return cursor;
    } else if (cursor.positional++ == 0) {
      cursor.first = word;
    }
  }
  return cursor;
}

Result<Pool> connect() {
  constexpr auto kSoon = std::chrono::milliseconds(500);
  return Pool::connect({.arena_limit_bytes = 0, .connect_timeout = kSoon, .control_timeout = kSoon});
}

std::vector<std::string> served_models() {
  auto pool = connect();
  auto names = pool.ok() ? pool->list() : pool.status();
  return names.ok() ? *std::move(names) : std::vector<std::string>();
}

/// Of a model that answers now, so that nobody waits until it is loaded.
Result<std::vector<TensorSpec>> served_inputs(const std::string& model) {
  SHOAL_ASSIGN_OR_RETURN(Pool pool, connect());
  SHOAL_ASSIGN_OR_RETURN(const std::string text, pool.stats());
  if (!is_served(text, model)) return std::vector<TensorSpec>();
  SHOAL_ASSIGN_OR_RETURN(ModelInfo info, pool.describe(model));
  return std::move(info.inputs);
}

/// Reads no checkpoint, which may be large: only model.toml.
Result<std::set<std::string>> configured_inputs(std::string path) {
  const char* home = std::getenv("HOME");
  if (home && path.starts_with("~/")) path.replace(0, 1, home);  // shells hand over the words as they were typed
  SHOAL_ASSIGN_OR_RETURN(const ModelFiles files, find_model(path));
  SHOAL_ASSIGN_OR_RETURN(const ModelConfig config, read_model_config(files));
  return named_inputs(config);
}

std::vector<std::string> inputs_of(const std::string& model) {
  std::vector<std::string> names;
  if (is_path(model)) {
    if (const auto configured = configured_inputs(model); configured.ok()) names.assign(configured->begin(), configured->end());
  } else if (const auto served = served_inputs(model); served.ok()) {
    for (const TensorSpec& input : *served) names.push_back(input.name);
  }
  return names;
}

}  // namespace

Candidates complete(const CLI::App& application, std::span<const std::string> words, const LookUp& look_up) {
  std::vector<std::string> whole = put_together(words);
  if (whole.empty()) whole.emplace_back();
  const std::string begun = whole.back();
  whole.pop_back();
  const Cursor cursor = cursor_behind(application, whole);
  if (!cursor.app) return {};
  if (cursor.option) return values(cursor.option->get_type_name(), begun, cursor.first, look_up);
  if (!cursor.is_after_dashes && begun.starts_with('-')) {
    const auto equals = begun.find('=');
    if (equals == std::string::npos) return options_of(*cursor.app);
    const CLI::Option* option = cursor.app->get_option_no_throw(begun.substr(0, equals));
    return option ? values(option->get_type_name(), begun.substr(equals + 1), cursor.first, look_up) : Candidates();
  }
  if (cursor.app == &application) {
    Candidates candidates;
    for (const CLI::App* command : application.get_subcommands([](const CLI::App*) { return true; }))
      candidates.words.push_back({command->get_name(), first_line(command->get_description())});
    return candidates.words.empty() ? options_of(application) : candidates;
  }
  const auto positionals = positionals_of(*cursor.app);
  if (positionals.empty()) return {};
  const CLI::Option* last = positionals.back();
  if (cursor.positional >= positionals.size() && last->get_items_expected_max() <= 1) return {};
  const CLI::Option* option = positionals[std::min(cursor.positional, positionals.size() - 1)];
  const std::string kind = option->get_type_name();
  return values(kind.find('{') == std::string::npos ? option->get_name(true) : kind, begun, cursor.first, look_up);
}

bool is_served(const std::string& stats, const std::string& model) try {
  const json object = json::parse(stats);
  for (const json& version : object.at("models")) {
    if (version.at("name") == model && version.at("serving") == true) return true;
  }
  return false;
} catch (const json::exception&) {
  return false;
}

int print_candidates(const CLI::App& application, std::span<const std::string> words) {
  const Candidates candidates = complete(application, words, {served_models, inputs_of});
  const bool is_file = candidates.files == Candidates::Files::kAll;
  std::printf("%s\n", is_file ? "files" : candidates.files == Candidates::Files::kDirectories ? "directories" : "none");
  for (const auto& [text, about] : candidates.words) std::printf("%s\t%s\n", printable(text).c_str(), printable(about).c_str());
  return kSuccess;
}

int print_daemon_candidates(std::span<const std::string> words) {
  CLI::App daemon("", "shoald");
  daemon.set_version_flag("--version", "");
  supervisor::CommandLine line;
  supervisor::add_options(daemon, line);
  return print_candidates(daemon, words);
}

Command make_completion(CLI::App& application) {
  const auto shell = std::make_shared<std::string>();
  CLI::App* app = application.add_subcommand("completion", kCompletionAbout);
  app->footer(kCompletionMore);
  app->add_option("SHELL", *shell, "bash or zsh")->required()->check(CLI::IsMember({"bash", "zsh"}));
  return {app, [shell](Invocation&) -> Finish {
            std::fputs(*shell == "bash" ? kBash : kZsh, stdout);
            return {};
          }};
}

}  // namespace shoal::tool
