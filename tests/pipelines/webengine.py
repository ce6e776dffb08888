"""A page of QtWebEngine (Chromium, out of the package index) without a screen, steered from outside through DevTools.

Started as a process of its own by browser.py, with the port to listen on as the only argument.
"""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Shows an empty page until the process is ended."""
    os.environ["QT_QPA_PLATFORM"] = "offscreen"
    os.environ["QTWEBENGINE_REMOTE_DEBUGGING"] = f"127.0.0.1:{sys.argv[1]}"
    os.environ["QTWEBENGINE_DISABLE_SANDBOX"] = "1"  # Chromium refuses to sandbox for root, which containers run as
    os.environ["QTWEBENGINE_CHROMIUM_FLAGS"] = "--disable-gpu --disable-background-networking"
    from PySide6.QtCore import QUrl
    from PySide6.QtWebEngineWidgets import QWebEngineView
    from PySide6.QtWidgets import QApplication

    app = QApplication(sys.argv[:1])
    view = QWebEngineView()
    view.setUrl(QUrl("about:blank"))
    view.resize(1200, 900)
    view.show()
    app.exec()


if __name__ == "__main__":
    main()
