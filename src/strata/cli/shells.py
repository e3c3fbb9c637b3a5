"""What each shell needs to complete `strata`, and where it looks for it.

Every script asks the very command that is typed (`./strata` as well as `strata`), so a checkout completes like an
installed package, and what is offered is decided in completion.py alone.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from strata.core.errors import StrataError, UsageError

BASH = r"""# Completion of strata for bash: source <(strata --show-completion bash)
_strata_complete() {
    local IFS=$'\n'
    COMPREPLY=($("${1/#\~/$HOME}" --complete bash "${COMP_LINE:0:COMP_POINT}" 2>/dev/null))
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[/=] ]]; then compopt -o nospace 2>/dev/null; fi
}
complete -o bashdefault -o default -F _strata_complete strata
"""

ZSH = r"""#compdef strata
# Completion of strata for zsh: source <(strata --show-completion zsh)
_strata() {
    local line
    local -a values shown open openshown
    for line in "${(@f)$("${~words[1]}" --complete zsh "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)}"; do
        [[ -z $line ]] && continue
        if [[ ${line%%$'\t'*} == *[/=] ]]; then
            open+=("${line%%$'\t'*}") openshown+=("${line/$'\t'/  }")
        else
            values+=("${line%%$'\t'*}") shown+=("${line/$'\t'/  }")
        fi
    done
    (( ${#values} )) && compadd -l -d shown -a values
    (( ${#open} )) && compadd -S '' -l -d openshown -a open
    (( ${#values} + ${#open} ))
}
if [[ ${funcstack[1]} == _strata ]]; then _strata "$@"; else compdef _strata strata; fi
"""

FISH = r"""# Completion of strata for fish: strata --show-completion fish | source
function __strata_complete
    set -l words (commandline --tokenize --cut-at-cursor --current-process)
    set -l program (string replace --regex '^~' $HOME -- $words[1])
    set --erase words[1]
    $program --complete fish $words (commandline --current-token --cut-at-cursor) 2>/dev/null
end
complete --command strata --no-files --arguments '(__strata_complete)'
"""

ZSH_START = "(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }\n"


class Shell(NamedTuple):
    """A shell's way of completing."""

    script: str
    file: str
    """Where the script goes, below the home folder."""
    start: str = ""
    """The start-up file that has to read it; "" where the shell finds it by its name."""
    before: str = ""
    """What that needs first."""


SHELLS: Mapping[str, Shell] = {
    "bash": Shell(BASH, ".local/share/bash-completion/completions/strata", ".bashrc"),
    "zsh": Shell(ZSH, ".local/share/strata/completion.zsh", ".zshrc", ZSH_START),
    "fish": Shell(FISH, ".config/fish/completions/strata.fish"),
}


def shell_named(name: str | None, environ: Mapping[str, str]) -> str:
    """The shell that was asked for, else the one of the login; UsageError for one that is not known."""
    shell = name or Path(environ.get("SHELL", "")).name
    if shell not in SHELLS:
        found = f"found {shell[:40]!r}" if shell else "found none in $SHELL"
        raise UsageError(f"completion: expected one of {', '.join(SHELLS)}, {found}", "strata --show-completion bash")
    return shell


def install_completion(shell: str, environ: Mapping[str, str]) -> list[str]:
    """Put the script where `shell` finds it, once -> what was done. StrataError when a file cannot be written."""
    home = Path(environ["HOME"]) if environ.get("HOME") else Path.home()
    kind = SHELLS[shell]
    target = home / kind.file
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(kind.script)
        done = [f"{target} is written"]
        start = home / kind.start
        line = f"{kind.before}[ -f '{target}' ] && . '{target}'\n"
        if kind.start and line not in (start.read_text() if start.exists() else ""):
            with start.open("a") as file:
                file.write(f"\n# Completion of strata\n{line}")
            done.append(f"{start} reads it")
    except OSError as error:
        raise StrataError(
            f"{error.filename}: cannot be written: {error.strerror}",
            f"strata --show-completion {shell} shows the script",
        ) from error
    return [*done, "the next shell completes strata"]
