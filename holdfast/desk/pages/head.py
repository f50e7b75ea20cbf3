"""What browsers do by themselves: times in their own zone, and no buttons without a connection."""

from __future__ import annotations

HEAD = """<style>
  #popup {
    inset: 3.5rem 0 auto 0; margin: 0; padding: 0.5rem 1rem; border: 0; border-radius: 0;
    flex-direction: row; justify-content: center; gap: 0.25rem; font-size: 0.875rem;
    background: #fef3c7; color: #78350f; transition: none;
  }
  .body--dark #popup { background: #451a03; color: #fde68a }
  #popup[aria-hidden="false"] { transition: visibility 0s 1s }
  #popup > span { font-weight: normal }
  #popup > span::before { content: none }
  #popup > span:last-child { font-size: 0 }
  #popup > span:last-child::after {
    content: "Buttons are off until it is back; the page continues on its own.";
    font-size: 0.875rem;
  }
  [data-off] { opacity: 0.5; cursor: not-allowed }
</style><script>
addEventListener("load", () => {
  const lost = '#popup[aria-hidden="false"], [data-cut="true"]';
  const buttons = ":is(main, .q-dialog) button:enabled";
  const each = (what, act) => document.querySelectorAll(what).forEach(act);
  const turn = (isOff) => (it) => { it.disabled = isOff; it.toggleAttribute("data-off", isOff); };
  const tell = (it) => {
    const at = new Date(it.dateTime), now = new Date();
    const year = at.getFullYear() === now.getFullYear() ? undefined : "numeric";
    const day = { day: "numeric", month: "short", year };
    const time = { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" };
    const isToday = at.toDateString() === now.toDateString();
    it.textContent = at.toLocaleString("en-GB", isToday ? time : { ...day, ...time });
    it.title = at.toLocaleString("en-GB", { dateStyle: "full", timeStyle: "long" });
  };
  const look = () => {
    each("time:not([title])", tell);
    if (document.querySelector(lost)) each(buttons, turn(true));
    else each("[data-off]", turn(false));
  };
  const seen = ["aria-hidden", "data-cut"];
  new MutationObserver(look).observe(document.body,
    { subtree: true, childList: true, attributes: true, attributeFilter: seen });
  look();
});
</script>"""
